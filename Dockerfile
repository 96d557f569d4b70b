# syntax=docker/dockerfile:1
# The base is an argument, so that you can pin it: --build-arg BASE=python:3.12-slim-bookworm@sha256:<digest of the day>.
# Any image with Python 3.11 or newer and its venv module will do. Build for the architecture of the tasks, as the module's
# cpu_architecture says it: --platform linux/arm64 (ARM64, the default there) or linux/amd64 (X86_64).
ARG BASE=python:3.12-slim-bookworm

# --- build: everything that is needed only to install ------------------------------------------------------------------
FROM ${BASE} AS build

WORKDIR /build
RUN python3 -m venv --copies /opt/interlock

# Dependencies first: they change more rarely than the program, and their layer is kept.
COPY requirements/runtime.txt requirements/runtime.txt
RUN /opt/interlock/bin/python -m pip install --no-cache-dir --disable-pip-version-check -r requirements/runtime.txt

COPY pyproject.toml README.md LICENSE ./
COPY worker worker
COPY consumers consumers
COPY scheduler scheduler
# Compiled here, because the file system it runs on cannot be written; and without pip, which has no business there.
RUN /opt/interlock/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps . \
    && /opt/interlock/bin/python -m compileall -q /opt/interlock/lib \
    && /opt/interlock/bin/python -m pip uninstall -y -q pip setuptools

# --- run --------------------------------------------------------------------------------------------------------------
FROM ${BASE}

# Numbers, because a task definition names a user by number. The directory is made here, because a volume that is
# mounted over it takes over its owner. The base's own pip has no business here either.
RUN groupadd --gid 10001 interlock \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/interlock --shell /usr/sbin/nologin interlock \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/interlock \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/pip*

COPY --from=build /opt/interlock /opt/interlock

ENV PATH=/opt/interlock/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /var/lib/interlock
VOLUME ["/var/lib/interlock"]
USER 10001:10001

# The exec form: SIGTERM reaches the worker itself. Health is checked by the task definition, which alone counts on ECS.
ENTRYPOINT ["interlock"]
CMD ["run"]
