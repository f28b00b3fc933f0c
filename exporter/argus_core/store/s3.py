"""A store in a bucket of S3 or of a server that speaks its protocol, by boto3 (extra `[trace]`)."""

from __future__ import annotations

import configparser
import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from argus_core.store.base import (
    CHUNK_BYTES,
    StoreDenied,
    StoredObject,
    StoreError,
    StoreMissing,
    StoreUnavailable,
)
from argus_core.store.config import StoreConfig
from argus_core.store.keys import check_key

_MISSING: Final = frozenset(("404", "NoSuchKey", "NotFound"))
_BAD_RANGE: Final = frozenset(("416", "InvalidRange"))
_UNAVAILABLE: Final = frozenset(
    (
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "InternalError",
        "NoSuchUpload",  # the server forgot a multipart upload: the next try starts another
    )
)


class S3Store:
    """Objects of one bucket under one prefix. Makes its client when first used, and anew after a refusal."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._boto3 = _boto3("boto3")
        self._exceptions = _boto3("botocore.exceptions")
        self._transfer = _boto3("boto3.s3.transfer").TransferConfig(
            multipart_threshold=config.part_bytes,
            multipart_chunksize=config.part_bytes,
            use_threads=False,  # one part in memory at a time, and no threads beside the caller's
        )
        self._clients: dict[str | None, Any] = {}
        self._lock = threading.Lock()
        if config.credentials_file is not None:
            self._credentials()

    @property
    def name(self) -> str:
        return f"s3://{self._config.bucket}/{self._config.prefix}"

    def put(self, key: str, source: BinaryIO) -> None:
        place = self._place(key)
        with self._errors(key):
            # boto3 closes what it uploads.
            self._client().upload_fileobj(
                _Unclosable(source),
                self._config.bucket,
                place,
                ExtraArgs={"ContentType": "application/octet-stream"},
                Config=self._transfer,
            )

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        place = self._place(key)
        if start < 0:
            raise ValueError(f"{self.name}: {key}: allowed start: 0 or more, not {start}")
        if length == 0:
            return iter(())
        arguments = {}
        if start or length is not None:
            arguments["Range"] = f"bytes={start}-{start + length - 1 if length is not None else ''}"
        with self._errors(key):
            answer = self._client().get_object(Bucket=self._config.bucket, Key=place, **arguments)
        return self._chunks(key, answer["Body"])

    def head(self, key: str) -> StoredObject:
        place = self._place(key)
        with self._errors(key):
            answer = self._client().head_object(Bucket=self._config.bucket, Key=place)
        return StoredObject(key, int(answer["ContentLength"]), answer["LastModified"].timestamp())

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        cut = len(self._config.prefix)
        with self._errors(prefix):
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._config.bucket, Prefix=self._config.prefix + prefix)
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    yield StoredObject(item["Key"][cut:], int(item["Size"]), item["LastModified"].timestamp())

    def delete(self, key: str) -> None:
        place = self._place(key)
        with self._errors(key), contextlib.suppress(StoreMissing):
            self._client().delete_object(Bucket=self._config.bucket, Key=place)

    def presign(self, key: str, seconds: int) -> str | None:
        place = self._place(key)
        with self._errors(key):
            url: str = self._client(self._config.presign_endpoint).generate_presigned_url(
                "get_object", Params={"Bucket": self._config.bucket, "Key": place}, ExpiresIn=seconds
            )
        return url

    def _place(self, key: str) -> str:
        check_key(key)
        return self._config.prefix + key

    def _chunks(self, key: str, body: Any) -> Iterator[bytes]:
        with contextlib.closing(body), self._errors(key):
            yield from body.iter_chunks(CHUNK_BYTES)

    def _client(self, endpoint: str | None = None) -> Any:
        with self._lock:
            client = self._clients.get(endpoint)
            if client is None:
                client = self._clients[endpoint] = self._make_client(endpoint or self._config.endpoint)
            return client

    def _make_client(self, endpoint: str | None) -> Any:
        config = self._config
        options = _boto3("botocore.config").Config(
            connect_timeout=config.timeout_seconds,
            read_timeout=config.timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": config.attempts},
            s3={"addressing_style": config.addressing},
            signature_version="s3v4",
            # The newer default sends CRC trailers that older servers (Swift, Ceph, MinIO before 2025) refuse.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        file = config.credentials_file
        session = self._boto3.session.Session(
            region_name=config.region,
            profile_name=config.profile if file is None else None,
            **(self._credentials() if file is not None else {}),
        )
        return session.client(
            "s3",
            endpoint_url=endpoint,
            # S3 servers other than AWS have no regions, but a signature names one.
            region_name=config.region or session.region_name or ("us-east-1" if endpoint else None),
            verify=str(config.ca_file) if config.ca_file is not None else None,
            config=options,
        )

    def _credentials(self) -> dict[str, str]:
        """Keys of the credentials file.

        Raises:
            StoreDenied: it cannot be read, or lacks the section or a key.
        """
        file, profile = self._config.credentials_file, self._config.profile or "default"
        assert file is not None
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(file.read_text())
            section = parser[profile]
            found = {
                "aws_access_key_id": section["aws_access_key_id"],
                "aws_secret_access_key": section["aws_secret_access_key"],
            }
        except OSError as error:
            raise StoreDenied(f"credentials file {file}: {error.strerror}") from error
        except KeyError as error:
            raise StoreDenied(f"credentials file {file}: has no {error} in section [{profile}]") from error
        except (configparser.Error, UnicodeDecodeError):
            # Not chained: the parser's message repeats the line, which may be the secret.
            raise StoreDenied(f"credentials file {file}: not in the form of ~/.aws/credentials") from None
        if "aws_session_token" in section:
            found["aws_session_token"] = section["aws_session_token"]
        return found

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._exceptions.ClientError as error:
            raise self._refusal(key, error) from error
        except self._boto3.exceptions.S3UploadFailedError as error:
            cause = error.__context__
            if isinstance(cause, self._exceptions.ClientError):
                raise self._refusal(key, cause) from error
            raise StoreUnavailable(f"{self.name}: {key}: {error}") from error
        except self._exceptions.BotoCoreError as error:
            credentials = isinstance(
                error,
                (
                    self._exceptions.NoCredentialsError,
                    self._exceptions.PartialCredentialsError,
                    self._exceptions.CredentialRetrievalError,
                    self._exceptions.ProfileNotFound,
                    self._exceptions.NoRegionError,
                ),
            )
            if not credentials:
                raise StoreUnavailable(f"{self.name}: {key}: {error}") from error
            self._forget_clients()
            raise StoreDenied(f"{self.name}: {key}: {error}") from error
        except (OSError, EOFError) as error:
            raise StoreUnavailable(f"{self.name}: {key}: {error}") from error

    def _refusal(self, key: str, error: Any) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        text = f"{self.name}: {key}: {error}"
        if code in _MISSING:
            return StoreMissing(f"{self.name}: there is no object {key}")
        if code in _BAD_RANGE:
            return ValueError(text)
        if code in _UNAVAILABLE or status >= 500 or status in (408, 429):
            return StoreUnavailable(text)
        self._forget_clients()
        return StoreDenied(f"{text}; see the credentials, the bucket and the clock of this host")

    def _forget_clients(self) -> None:
        """Credentials may have been replaced: the next request reads them again."""
        with self._lock:
            self._clients.clear()


class _Unclosable:
    """A stream that stays open when it is closed: it is the caller's."""

    def __init__(self, source: BinaryIO) -> None:
        self.read = source.read
        self.seek = source.seek
        self.tell = source.tell

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing: see the class."""


def _boto3(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise StoreError(
            f"a store of type s3 needs boto3 ({error}): install argus-for-prometheus[trace], "
            "or choose type folder"
        ) from error
