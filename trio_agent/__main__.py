"""``python -m trio_agent`` is ``trio-agent``."""

from trio_agent.cli import main

if __name__ == "__main__":
    main()
