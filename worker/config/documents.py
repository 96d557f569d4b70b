"""Parses a text to a document and records the problems of the YAML itself."""

from worker.config.problems import Problems
from worker.yaml.document import BadYaml, Document
from worker.yaml.parser import read_yaml


def read_document(text: str, file: str, *, lenient: bool = False) -> tuple[Document | None, Problems]:
    """Parse a text. The document is None if the text cannot be parsed; the problems say why."""
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
