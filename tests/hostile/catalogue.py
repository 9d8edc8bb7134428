"""All cases, by what is hostile."""

from hostile.bodies import BODIES
from hostile.case import Case
from hostile.clients import CLIENTS
from hostile.crowds import CROWDS
from hostile.documents import DOCUMENTS
from hostile.forms import FORMS
from hostile.frames import FRAMES
from hostile.peers import PEERS
from hostile.replies import REPLIES
from hostile.stores import STORES

GROUPS: dict[str, tuple[Case, ...]] = {
    "clients: HTTP/1.1": CLIENTS,
    "clients: HTTP/2": FRAMES,
    "clients: JSON and counts": BODIES,
    "clients: forms": FORMS,
    "clients: many at once": CROWDS,
    "clients and upstreams of stored responses": STORES,
    "upstreams: HTTP and event streams": REPLIES,
    "upstreams: HTTP/2, and connections that are used again": PEERS,
    "upstreams: completions and Responses": DOCUMENTS,
}
CASES = tuple(case for group in GROUPS.values() for case in group)
