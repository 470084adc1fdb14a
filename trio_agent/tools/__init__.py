"""Ready-made tools. Each is made by a factory that takes the host's limits, and is an ordinary Tool."""

from ._edit import edit_file as edit_file
from ._fetch import fetch_url as fetch_url
from ._files import read_file as read_file
from ._list import list_files as list_files
from ._network import FetchError as FetchError
from ._process import ProcessLeftError as ProcessLeftError
from ._root import PathError as PathError
from ._search import SearchError as SearchError
from ._search import search_text as search_text
from ._shell import DEFAULT_ENVIRONMENT as DEFAULT_ENVIRONMENT
from ._shell import default_environment as default_environment
from ._shell import run_command as run_command
from ._write import write_file as write_file

for _name in (
    "FetchError",
    "PathError",
    "ProcessLeftError",
    "SearchError",
    "default_environment",
    "edit_file",
    "fetch_url",
    "list_files",
    "read_file",
    "run_command",
    "search_text",
    "write_file",
):
    globals()[_name].__module__ = __name__  # the public path, as in Trio
del _name
