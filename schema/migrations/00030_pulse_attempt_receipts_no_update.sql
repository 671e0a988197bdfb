-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TRIGGER pulse_attempt_receipts_no_update BEFORE UPDATE ON pulse_attempt_receipts FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pulse_attempt_receipts is history: rows are never updated';
-- +goose StatementEnd
