"""Whether a store keeps its promises, by trying: what `durable doctor` and `durable init` do.

    findings     what was found, how bad it is, and the command that mends it
    probe        the folder in which it is tried, and its end
    operations   reaching the store, and each operation once
    races        sixteen attempts at once: create-only, compare-and-swap, conditional delete
    together     calls at once, each with its outcome
    speed        how long calls take, and the store's clock
    settings     what a bucket's settings mean for leases. Pure
    buckets      reading and changing them, with Google's own client
    roles        who may do what with these rights. Pure
    platforms    whether a worker may run here between two requests. Pure
    examination  all of it, in order

Everything that is written is below `doctor/TOKEN/` and deleted again. A bucket whose settings
forbid that is not written to.
"""

from durable.doctor.examination import examine as examine
from durable.doctor.findings import Finding as Finding
from durable.doctor.findings import Report as Report
