"""The garbage collector, told what it need not look at."""

import gc


def freeze_startup_objects() -> None:
    """Take everything that start-up has made out of the collector's sight; call it once, when all is ready.

    Code, types and the descriptions of AWS services are hundreds of thousands of objects that live as long as the
    process. A full answer of a stream makes enough new ones that the collector would go through all of them every
    few reads, and the event loop would stand still for tens of milliseconds each time.
    """
    gc.collect()
    gc.freeze()
