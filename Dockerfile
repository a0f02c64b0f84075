# One CPU image for every process of the service; compose.yaml says which process runs where.
FROM python:3.11-slim-bookworm AS base
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /app

FROM base AS build
# for the engine's optional kernels; an image without them is slower and works
RUN apt-get update && apt-get install --yes --no-install-recommends g++ || echo "no C++ compiler"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# torch without CUDA comes from its own index; empty: only from where pip looks anyway
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
# the dependencies alone first: a change of the code does not install them again
COPY pyproject.toml constraints.txt ./
RUN python -c 'import tomllib; \
p = tomllib.load(open("pyproject.toml", "rb"))["project"]; e = p["optional-dependencies"]; \
print(*p["dependencies"], *e["worker"], *e["documents"], *e["small-model"], sep="\n")' >/tmp/requirements.txt \
    && PIP_EXTRA_INDEX_URL=$TORCH_INDEX_URL pip install -c constraints.txt -r /tmp/requirements.txt
COPY . .
RUN pip install --no-deps --editable .
RUN python -m engine.native --shipped

FROM base
# the state folder is made here, so that a volume mounted there belongs to the user
RUN useradd --uid 10001 --create-home docmill \
    && install -d -o docmill -g docmill /var/lib/docmill
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 DOCMILL_STATE_DIR=/var/lib/docmill
USER docmill
ENTRYPOINT ["/app/deploy/entrypoint.sh"]
CMD ["docmill", "--help"]
