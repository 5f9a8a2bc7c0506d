# The two images. Build them from the top of the checkout:
#   docker build -t REGISTRY/tidegate-operator:VERSION .
#   docker build -t REGISTRY/tidegate-gateway:VERSION --target gateway .
# For a build that can be repeated exactly, pin the base by digest: --build-arg PYTHON=python:3.12-slim@sha256:...
# (no digest is written here, since it has to be looked up where the registry can be reached).
ARG PYTHON=python:3.12-slim

# Only what is locked, only as it is locked, and compiled here: the root file system is read-only later.
FROM ${PYTHON} AS gateway-build
WORKDIR /app
COPY requirements/gateway.txt requirements/gateway.txt
RUN python -m pip install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
      --target site-packages --requirement requirements/gateway.txt \
 && rm -rf site-packages/bin requirements
COPY operator/tidegate tidegate
RUN python -m compileall -q --invalidation-mode unchecked-hash site-packages tidegate

FROM ${PYTHON} AS gateway
LABEL org.opencontainers.image.title="tidegate-gateway" \
      org.opencontainers.image.description="Counts and drains the requests of an LLM engine" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=gateway-build /app /app
COPY LICENSE /app/LICENSE
ENV PYTHONPATH=/app:/app/site-packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 65532:65532
ENTRYPOINT ["python", "-m", "tidegate"]
CMD ["gateway"]

FROM ${PYTHON} AS operator-build
WORKDIR /app
COPY requirements/operator.txt requirements/operator.txt
RUN python -m pip install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
      --target site-packages --requirement requirements/operator.txt \
 && rm -rf site-packages/bin requirements
COPY operator/tidegate tidegate
RUN python -m compileall -q --invalidation-mode unchecked-hash site-packages tidegate

# The last one is what is built without --target.
FROM ${PYTHON} AS operator
LABEL org.opencontainers.image.title="tidegate-operator" \
      org.opencontainers.image.description="Safe rollouts of LLM services on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-build /app /app
COPY LICENSE /app/LICENSE
ENV PYTHONPATH=/app:/app/site-packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 65532:65532
ENTRYPOINT ["python", "-m", "tidegate"]
CMD ["operator"]
