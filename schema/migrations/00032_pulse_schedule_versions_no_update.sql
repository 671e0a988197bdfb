-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TRIGGER pulse_schedule_versions_no_update BEFORE UPDATE ON pulse_schedule_versions FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pulse_schedule_versions is history: rows are never updated';
-- +goose StatementEnd
