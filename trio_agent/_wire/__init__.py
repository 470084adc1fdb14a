"""What is said and told, as plain JSON and back.

The JSON is pi's own (camelCase keys, the role ``toolResult``), so that a transcript can be read by
either. Nothing is lost on the way: unknown fields are kept and written back, and messages of the
host's own kind take part once their class is registered.
"""

from ._events import EventDecoder as EventDecoder
from ._events import event_to_json as event_to_json
from ._messages import message_from_json as message_from_json
from ._messages import message_to_json as message_to_json
from ._messages import register_message_type as register_message_type
from ._messages import unregister_message_type as unregister_message_type
from ._transcript import transcript_from_json as transcript_from_json
from ._transcript import transcript_to_json as transcript_to_json
