-- History rejects UPDATE. This is a guard against mistakes of programs, not against a database administrator.

CREATE TRIGGER orbit_events_no_update BEFORE UPDATE ON orbit_events FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'orbit_events is history: rows are never updated';

CREATE TRIGGER orbit_audit_events_no_update BEFORE UPDATE ON orbit_audit_events FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'orbit_audit_events is history: rows are never updated';

CREATE TRIGGER pulse_attempt_receipts_no_update BEFORE UPDATE ON pulse_attempt_receipts FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pulse_attempt_receipts is history: rows are never updated';

CREATE TRIGGER pulse_attempt_evidence_no_update BEFORE UPDATE ON pulse_attempt_evidence FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pulse_attempt_evidence is history: rows are never updated';

CREATE TRIGGER pulse_schedule_versions_no_update BEFORE UPDATE ON pulse_schedule_versions FOR EACH ROW
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pulse_schedule_versions is history: rows are never updated';
