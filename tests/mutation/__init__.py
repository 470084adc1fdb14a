"""Mutation of the core: small faults are planted one by one, and the judges have to notice each.

::

    mutate      the command: forks a child for each mutant, keeps the results, prints the tables
    judges      what runs in a child: recorded traces, exploration, the tests of the core
    planted     a library whose source is replaced in memory, and how mutants are made and told apart
    tool        mutants made by the operators of cosmic-ray
    by_hand     mutants made by hand: careless changes that no operator makes
"""
