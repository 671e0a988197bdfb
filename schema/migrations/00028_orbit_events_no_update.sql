-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TRIGGER orbit_events_no_update BEFORE UPDATE ON orbit_events FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'orbit_events is history: rows are never updated';
-- +goose StatementEnd
