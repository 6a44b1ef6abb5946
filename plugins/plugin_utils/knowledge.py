from .known import knowledge as knowledge
