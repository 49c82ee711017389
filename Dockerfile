# The image of the controller: a static binary and CA certificates, nothing else. `docker build -t tranche:dev .`
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/tranche cmd/tranche
COPY config config
COPY gitsync gitsync
COPY plan plan
COPY rollout rollout
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /tranche ./cmd/tranche

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /tranche /tranche
USER 65532:65532
ENTRYPOINT ["/tranche"]
