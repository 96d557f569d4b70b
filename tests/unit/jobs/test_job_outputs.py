"""What a job returned is stored bounded, without secrets, and as JSON where it is JSON."""

import base64

from worker.jobs.outputs import OUTPUT_BYTES_MAX, outputs_of


def test_json_is_kept_as_json_and_anything_else_as_text() -> None:
    assert outputs_of(b'{"seen": 1200}') == {"result": {"seen": 1200}}
    assert outputs_of(b"done\n") == {"text": "done\n"}
    assert outputs_of(b" \n") is None


def test_a_long_answer_is_cut_and_says_so() -> None:
    outputs = outputs_of(b"x" * (OUTPUT_BYTES_MAX + 1))

    assert outputs is not None
    assert (outputs["isCut"], outputs["size"]) == (True, OUTPUT_BYTES_MAX + 1)
    assert len(str(outputs["text"])) <= OUTPUT_BYTES_MAX


def test_secrets_are_hidden_in_any_encoding() -> None:
    secret = "s3cret-value"
    encoded = base64.b64encode(secret.encode()).decode()

    outputs = outputs_of(f'{{"token": "{secret}", "header": "{encoded}"}}'.encode(), {secret})

    assert outputs == {"result": {"token": "***", "header": "***"}}


def test_a_secret_at_the_cut_of_a_long_answer_is_not_shown_in_part() -> None:
    body = b"y" * (OUTPUT_BYTES_MAX - 6) + b"s3cret-value" + b"z" * 100

    outputs = outputs_of(body, {"s3cret-value"})

    assert "s3cre" not in str(outputs)


def test_deeply_nested_answers_are_kept_as_text() -> None:
    for depth in (33, 500, 4_000):
        body = b"[" * depth + b"]" * depth

        assert outputs_of(body) == {"text": body.decode()}
    assert outputs_of(b"[[[]]]") == {"result": [[[]]]}
