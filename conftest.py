"""Pages of the documentation that import a framework are for `make test-all` alone."""

from tests.thorough import THOROUGH

collect_ignore = [] if THOROUGH else ["docs/coming-from/tf-data.md", "docs/coming-from/torch.md"]
