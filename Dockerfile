# Images with `runner`: `--target=cpu`, the default, and `--target=cuda`. See docs/storage.md.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
LABEL org.opencontainers.image.title="Orbit Runner" \
      org.opencontainers.image.description="A config file is the experiment: a runner for TensorFlow's Orbit loop and Model Garden tasks." \
      org.opencontainers.image.licenses="Apache-2.0"
# Any user may write to the two directories, because `docker run --user` sets any user id.
RUN groupadd --gid=1000 runner \
 && useradd --uid=1000 --gid=1000 --create-home --shell=/bin/bash runner \
 && install --directory --owner=runner --group=runner --mode=1777 /work \
 && chmod 1777 /home/runner
ENV HOME=/home/runner PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
COPY requirements.lock /opt/orbit-runner/
RUN python3 -m venv /opt/venv \
 && pip install --no-cache-dir --no-deps --require-hashes --progress-bar=off -r /opt/orbit-runner/requirements.lock
WORKDIR /work
ENTRYPOINT ["runner"]
CMD ["--help"]

FROM packages AS cpu
COPY LICENSE README.md pyproject.toml /opt/orbit-runner/
COPY configs /opt/orbit-runner/configs
COPY experiments /opt/orbit-runner/experiments
COPY src /opt/orbit-runner/src
RUN pip install --no-cache-dir --no-deps --no-build-isolation /opt/orbit-runner
USER runner

# Below the layers of the sources, so that a change of the sources does not install these anew.
FROM packages AS packages-cuda
COPY requirements-cuda.lock /opt/orbit-runner/
RUN pip install --no-cache-dir --no-deps --require-hashes --progress-bar=off -r /opt/orbit-runner/requirements-cuda.lock

FROM packages-cuda AS cuda
COPY LICENSE README.md pyproject.toml /opt/orbit-runner/
COPY configs /opt/orbit-runner/configs
COPY experiments /opt/orbit-runner/experiments
COPY src /opt/orbit-runner/src
RUN pip install --no-cache-dir --no-deps --no-build-isolation /opt/orbit-runner
USER runner

# What is built without `--target`.
FROM cpu
