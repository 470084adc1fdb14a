"""For tests: a model that answers from a script, and scenarios that pin what an agent does.

:class:`ScriptedModel` stands in for a provider. :func:`run_scenario` plays a scenario file on a
virtual clock and gives the :class:`Trace` of everything that happened; :func:`compare` finds the
first difference between two traces. :func:`explore` runs a host for each of its moments and cuts it
there. :class:`TraceRecorder` shows what an agent does, :class:`Monitor` watches a live one.
"""

from ._errors import InvariantError as InvariantError
from ._errors import ScenarioStuckError as ScenarioStuckError
from ._errors import SchedulerError as SchedulerError
from ._errors import ScriptError as ScriptError
from ._errors import ScriptExhaustedError as ScriptExhaustedError
from ._errors import ScriptNotExhaustedError as ScriptNotExhaustedError
from ._explore._case import ACTS as ACTS
from ._explore._case import MODES as MODES
from ._explore._case import Case as Case
from ._explore._case import Place as Place
from ._explore._case import PlannedAct as PlannedAct
from ._explore._checks import INVARIANTS as INVARIANTS
from ._explore._checks import Violation as Violation
from ._explore._explore import Exploration as Exploration
from ._explore._explore import explore as explore
from ._explore._keys import explore_key_interrupts as explore_key_interrupts
from ._explore._probe import Probe as Probe
from ._explore._report import Failure as Failure
from ._monitor import Monitor as Monitor
from ._recorder import RecordedAgent as RecordedAgent
from ._recorder import TraceRecorder as TraceRecorder
from ._recorder import assert_trace as assert_trace
from ._recorder_tree import TraceEntry as TraceEntry
from ._rules import assert_adds_up as assert_adds_up
from ._rules import assert_events_paired as assert_events_paired
from ._rules import assert_transcript_valid as assert_transcript_valid
from ._runner import run_scenario as run_scenario
from ._runner import scenario_host as scenario_host
from ._scenario import Scenario as Scenario
from ._scenario_parts import HostMessage as HostMessage
from ._scenario_parts import ScriptedFailure as ScriptedFailure
from ._scheduler import seeded_scheduler as seeded_scheduler
from ._script import Block as Block
from ._script import PlainTurn as PlainTurn
from ._script import ScriptedModel as ScriptedModel
from ._script import Turn as Turn
from ._trace import Departure as Departure
from ._trace import Difference as Difference
from ._trace import Trace as Trace
from ._trace import Verdict as Verdict
from ._trace import compare as compare
from ._trace import judge as judge
from ._trace import load_departures as load_departures

for _item in list(globals().values()):
    if getattr(_item, "__module__", "").startswith(__name__ + "."):
        _item.__module__ = __name__
del _item
