# A small image that runs `penstock serve` as a user of its own. Data: the volume /data.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir '.[arrow,redis,mongo]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --no-create-home penstock \
    && install -d -o penstock -g penstock -m 0700 /data
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH \
    PENSTOCK_HOST=0.0.0.0 \
    PENSTOCK_PORT=8080 \
    PENSTOCK_DATA=/data
USER 10001
VOLUME /data
EXPOSE 8080
# /livez touches nothing: a store that is away makes the server unready, not sick.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"PENSTOCK_PORT\"]}/livez', timeout=2)"]
# The server stops by itself on SIGTERM, after the requests that it has accepted.
ENTRYPOINT ["penstock"]
CMD ["serve"]
