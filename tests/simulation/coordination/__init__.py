"""What runs share: singletons, queues, schedules, keys, effects.

To import it registers its scenarios.
"""

from tests.simulation.coordination import effects, held, locks, queues, schedules

MODULES = (effects, held, locks, queues, schedules)
