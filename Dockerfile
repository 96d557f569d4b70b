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
# Every file must have a digest of the lock file.
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN /opt/interlock/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile \
        --require-hashes -r requirements/runtime.txt \
    && python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements/build.txt

COPY pyproject.toml README.md LICENSE ./
COPY worker worker
COPY consumers consumers
COPY scheduler scheduler
# Compiled here, because the file system it runs on cannot be written; and without pip, which has no business there. Not by
# the time of the sources: a build that sets all times to that of the commit would leave every compiled file outdated.
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
    && /opt/interlock/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile --no-deps --no-index /wheel/*.whl \
    && /opt/interlock/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/interlock/lib \
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

# `make image` says them; an image that was built without it says so.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG BASE
LABEL org.opencontainers.image.title="interlock" \
      org.opencontainers.image.description="A safety controller for data pipelines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"

# The exec form: SIGTERM reaches the worker itself. Health is checked by the task definition, which alone counts on ECS.
ENTRYPOINT ["interlock"]
CMD ["run"]
