"""``python -m context_paging.service.cli``: the command line where the script is not on the path."""

from . import main

main()
