"""What the objects hold: readable JSON, one struct per kind.

Evolution: fields are only ever added, with a default; unknown fields are ignored on reading; a
field never changes its meaning. `nonce` is the write's own mark (promise P8) and stands in the
object's metadata too. Times are seconds since the epoch, UTC, by the store's clock.
"""

from durable.protocol.records.calls import Attempt as Attempt
from durable.protocol.records.calls import Beat as Beat
from durable.protocol.records.calls import Begin as Begin
from durable.protocol.records.calls import Event as Event
from durable.protocol.records.calls import Group as Group
from durable.protocol.records.calls import Outcome as Outcome
from durable.protocol.records.calls import Published as Published
from durable.protocol.records.calls import Slept as Slept
from durable.protocol.records.calls import Step as Step
from durable.protocol.records.calls import Take as Take
from durable.protocol.records.calls import Undo as Undo
from durable.protocol.records.calls import Wait as Wait
from durable.protocol.records.coordination import KeyClaim as KeyClaim
from durable.protocol.records.coordination import LockRecord as LockRecord
from durable.protocol.records.coordination import Pauses as Pauses
from durable.protocol.records.coordination import Pending as Pending
from durable.protocol.records.coordination import QueueRecord as QueueRecord
from durable.protocol.records.coordination import ScheduleRecord as ScheduleRecord
from durable.protocol.records.coordination import Slot as Slot
from durable.protocol.records.coordination import Starts as Starts
from durable.protocol.records.coordination import Waiter as Waiter
from durable.protocol.records.encoding import encode as encode
from durable.protocol.records.hints import Attention as Attention
from durable.protocol.records.hints import History as History
from durable.protocol.records.hints import Lease as Lease
from durable.protocol.records.hints import Marker as Marker
from durable.protocol.records.hints import Presence as Presence
from durable.protocol.records.hints import Timer as Timer
from durable.protocol.records.hints import is_marker as is_marker
from durable.protocol.records.runs import NEVER as NEVER
from durable.protocol.records.runs import Cancel as Cancel
from durable.protocol.records.runs import Debounce as Debounce
from durable.protocol.records.runs import Epoch as Epoch
from durable.protocol.records.runs import Fork as Fork
from durable.protocol.records.runs import Holder as Holder
from durable.protocol.records.runs import LockRequest as LockRequest
from durable.protocol.records.runs import Origin as Origin
from durable.protocol.records.runs import Parent as Parent
from durable.protocol.records.runs import Result as Result
from durable.protocol.records.runs import Seen as Seen
from durable.protocol.records.runs import Start as Start
from durable.protocol.records.runs import Status as Status
