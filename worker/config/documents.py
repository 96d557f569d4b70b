"""A text to a document, with what is wrong with the YAML itself already noted."""

from worker.config.problems import Problems
from worker.yaml.document import BadYaml, Document
from worker.yaml.parser import read_yaml


def read_document(text: str, file: str, *, lenient: bool = False) -> tuple[Document | None, Problems]:
    """None if nothing sensible can be read; the problems say why."""
    try:
        document = read_yaml(text)
    except BadYaml as error:
        problems = Problems(file, None, lenient=lenient)
        problems.fault(error.fault)
        return None, problems
    problems = Problems(file, document, lenient=lenient)
    for fault in document.faults:
        problems.fault(fault)
    return document, problems
