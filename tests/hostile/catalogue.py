"""All cases."""

from hostile.bodies import BODIES
from hostile.clients import CLIENTS
from hostile.documents import DOCUMENTS
from hostile.frames import FRAMES
from hostile.replies import REPLIES

CASES = (*CLIENTS, *BODIES, *FRAMES, *REPLIES, *DOCUMENTS)
