"""Leases: ownership of a key that expires unless it is renewed.

The bucket is authoritative: `leases/<key>` says who holds the lease, with which epoch, and since
when. Every change of holder raises the epoch, which never goes back, because a released lease's
object stays. So the epoch is a fencing token: whatever the holder writes elsewhere can carry it,
and the elsewhere can refuse a lower one.

- A holder trusts its lease until ttl - margin after it *sent* its last acknowledged write, on its
  own clock; others take it ttl + margin after that write was *stored*, by the store's clock, and
  only by compare-and-swap. The two never overlap (promise P11).
- Holding is proved by a secret token that never leaves the process unless it is handed over. The
  store and everything shown know its digest alone.
- Each write of the holder renews. In a bucket, whose objects take one write a second, they are
  gathered to that; a caller waits for the write that carries its own.
- A lease has a state that outlives its holders. Others may write into it too; the holder's next
  write finds that and keeps both.
- A holder that finds somebody else in its place, or gets no answer until the moment it trusts
  itself, has lost the lease. `hold` then cancels the body.
"""

from __future__ import annotations

from durable.leases.entries import LeaseEntry as LeaseEntry
from durable.leases.entries import Refuse as Refuse
from durable.leases.entries import Taken as Taken
from durable.leases.holder import LeaseHolder as LeaseHolder
from durable.leases.lease import Lease as Lease
from durable.leases.register import Leases as Leases
from durable.protocol.primitives import KEEP as KEEP

__all__ = ["KEEP", "Lease", "LeaseEntry", "LeaseHolder", "Leases", "Refuse", "Taken"]
