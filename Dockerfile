# One CPU image for every process of the service; compose.yaml says which process runs where.
FROM python:3.11-slim-bookworm AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH

FROM base AS dependencies
# torch without CUDA comes from its own index; empty: only the index that pip is configured for
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY docmill/__init__.py docmill/_version.py docmill/
# editable, so that the sources copied to the same place below are what runs
RUN PIP_EXTRA_INDEX_URL=$TORCH_INDEX_URL \
    pip install -c constraints.txt -e '.[worker,small-model]'

FROM base
# the state folder is made here, so that a volume mounted there belongs to the user
RUN useradd --uid 10001 --create-home docmill \
    && install -d -o docmill -g docmill /var/lib/docmill
COPY --from=dependencies /opt/venv /opt/venv
WORKDIR /app
COPY . .
ENV PYTHONPATH=/app PYTHONUNBUFFERED=1 DOCMILL_STATE_DIR=/var/lib/docmill
USER docmill
ENTRYPOINT ["/app/deploy/entrypoint.sh"]
CMD ["docmill", "--help"]
