-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_replies (
  namespace_id BINARY(16)        NOT NULL COMMENT 'tenant',
  id           BINARY(16)        NOT NULL COMMENT 'time-ordered identity',
  status       SMALLINT UNSIGNED NOT NULL COMMENT 'HTTP status of the first answer',
  etag         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ETag of the first answer; empty if it had none',
  body         MEDIUMBLOB        NOT NULL COMMENT 'bytes of the first answer, written unchanged on replay',
  PRIMARY KEY (namespace_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='replies kept for replay, out of row so that the key index stays narrow';
-- +goose StatementEnd
