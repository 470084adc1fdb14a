"""Real models. Each vendor's API is a decoder without I/O: bytes of a response in, events of an answer out.

What a provider does instead of answering is a :class:`ProviderError`.
"""

from ._anthropic import AnthropicMessagesDecoder as AnthropicMessagesDecoder
from ._anthropic_request import AnthropicMessagesEncoder as AnthropicMessagesEncoder
from ._compat import ChatCompat as ChatCompat
from ._compat import ChatThinking as ChatThinking
from ._compat import FinishMeaning as FinishMeaning
from ._compat import MessagesCompat as MessagesCompat
from ._compat import SystemMessages as SystemMessages
from ._driver import OnPayload as OnPayload
from ._driver import OnResponse as OnResponse
from ._driver import ProviderResponse as ProviderResponse
from ._errors import AuthenticationError as AuthenticationError
from ._errors import ContextTooLongError as ContextTooLongError
from ._errors import InvalidRequestError as InvalidRequestError
from ._errors import NotFoundError as NotFoundError
from ._errors import OverloadedError as OverloadedError
from ._errors import PermissionDeniedError as PermissionDeniedError
from ._errors import ProtocolError as ProtocolError
from ._errors import ProviderError as ProviderError
from ._errors import RateLimitError as RateLimitError
from ._errors import RefusedError as RefusedError
from ._errors import ServerError as ServerError
from ._errors import TransportError as TransportError
from ._errors import error_from_object as error_from_object
from ._errors import error_from_response as error_from_response
from ._exchange import TimeLimits as TimeLimits
from ._model import ApiName as ApiName
from ._model import Driver as Driver
from ._model import HTTPModel as HTTPModel
from ._model import Prices as Prices
from ._models import Models as Models
from ._models import connect as connect
from ._models import open_models as open_models
from ._openai_chat import OpenAIChatDecoder as OpenAIChatDecoder
from ._openai_chat_request import OpenAIChatEncoder as OpenAIChatEncoder

for _item in list(globals().values()):
    if getattr(_item, "__module__", "").startswith(__name__ + "."):
        _item.__module__ = __name__  # the public path, as in Trio
del _item
