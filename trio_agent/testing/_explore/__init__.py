"""Exploration: a host is run again for every moment that there is, and cut there in every way there is.

::

    _explore, _keys      counts the places of a host, runs it for each; SIGINT at every line
    _report, _shrink     what a failure says; how it is made smaller
    _run                 one run: the virtual clock, the order of tasks, the places, the checks
    _checks, _acts       the invariants of design 7.9, on what a run was seen to do; what is done at a place
    _probe               what a host gets: it watches agents and loops
    _wrap                how their tools, hooks, listeners and models are watched
    _log                 what a run was seen to do
    _case                what is done where, and its one-line form
"""
