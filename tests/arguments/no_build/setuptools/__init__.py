"""A build backend that builds nothing: see ``source`` in ../../__main__.py."""
