"""Exploration: a host is run again for every moment that there is, and cut there in every way there is.

::

    _explore, _keys      counts the places of a host, runs it for each; SIGINT at every line
    _report, _shrink     what a failure says; how it is made smaller
    _run                 one run: the virtual clock, the order of tasks, the acts, the checks
    _checks              the invariants of design 7.9, on what a run was seen to do
    _probe, _wrap        what a host gets: it watches agents; how tools, hooks and models are wrapped
    _acts                what can be done at a place
    _case                what is done where: a case, and its one-line form
    _log                 what a run was seen to do
"""
