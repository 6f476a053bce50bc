BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'golden');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,5.0,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,7.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,0.0,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-12-01 13:29:53.785850','2026-12-01 13:29:53.785850');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-12-01 13:29:53.793255','2026-12-01 13:29:53.793255');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-12-01 13:29:53.795890','2026-12-01 13:29:53.795890');
CREATE TABLE tuner_blocks (
	id INTEGER NOT NULL, 
	launch_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	load VARCHAR(40) NOT NULL, 
	wall_s FLOAT NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	errors INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(launch_id) REFERENCES tuner_launches (id)
);
INSERT INTO "tuner_blocks" VALUES(1,1,0,0,'c1',1.0,5,0,'{"index": 0, "load": {"concurrency": 1, "rate": null, "arrivals": "poisson", "trace": null}, "start_s": 0.0, "end_s": 1.0, "client_cpu_s": 0.0, "notes": []}');
INSERT INTO "tuner_blocks" VALUES(2,2,0,0,'c1',1.0,5,0,'{"index": 0, "load": {"concurrency": 1, "rate": null, "arrivals": "poisson", "trace": null}, "start_s": 0.0, "end_s": 1.0, "client_cpu_s": 0.0, "notes": []}');
INSERT INTO "tuner_blocks" VALUES(3,3,0,0,'c1',1.0,5,0,'{"index": 0, "load": {"concurrency": 1, "rate": null, "arrivals": "poisson", "trace": null}, "start_s": 0.0, "end_s": 1.0, "client_cpu_s": 0.0, "notes": []}');
CREATE TABLE tuner_fingerprints (
	digest VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "tuner_fingerprints" VALUES('f1','golden-host','{"host": "golden-host"}');
CREATE TABLE tuner_launches (
	id INTEGER NOT NULL, 
	study VARCHAR(120) NOT NULL, 
	purpose VARCHAR(10) NOT NULL, 
	"order" INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	round INTEGER, 
	digest VARCHAR(64) NOT NULL, 
	failure VARCHAR(40), 
	launch_s FLOAT NOT NULL, 
	total_s FLOAT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (study, purpose, "order"), 
	FOREIGN KEY(study) REFERENCES tuner_studies (name)
);
INSERT INTO "tuner_launches" VALUES(1,'golden','search',0,0,NULL,'',NULL,1.0,2.0,'{"log_path": "", "worker": ""}');
INSERT INTO "tuner_launches" VALUES(2,'golden','search',1,1,NULL,'d1',NULL,1.0,2.0,'{"log_path": "", "worker": ""}');
INSERT INTO "tuner_launches" VALUES(3,'golden','confirm',0,1,0,'d1',NULL,0.0,0.0,'{"campaign": "", "round": 0, "order": 0, "trial": 1, "digest": "d1", "value": 7.0, "per_block": [], "metrics": {}, "acceptance_length": null, "failure": null, "reason": "", "seconds": {"launch": 0.0, "warm_up": 0.0, "measure": 0.0, "stop": 0.0, "total": 0.0}, "outputs_match": null}');
CREATE TABLE tuner_leases (
	host VARCHAR(255) NOT NULL, 
	device VARCHAR(80) NOT NULL, 
	worker VARCHAR(120) NOT NULL, 
	study VARCHAR(120) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (host, device)
);
CREATE TABLE tuner_recommendations (
	id INTEGER NOT NULL, 
	study VARCHAR(120) NOT NULL, 
	verdict VARCHAR(20) NOT NULL, 
	finished_utc VARCHAR(40) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(study) REFERENCES tuner_studies (name)
);
INSERT INTO "tuner_recommendations" VALUES(1,'golden','use','','{"version": 1, "verdict": "use", "trial": 1, "server_args": {"flags": {}, "env": {}}, "digest": "", "ratio": 1.4, "low": 1.3, "high": 1.5, "constraints_met": true, "fidelity": "not checked", "held_out": true, "smallest_detectable": null, "reasons": [], "finalists": [], "is_simulated": false, "objective": "", "load": "", "finished_utc": ""}');
CREATE TABLE tuner_requests (
	id INTEGER NOT NULL, 
	block_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	prompt_id VARCHAR(200) NOT NULL, 
	category VARCHAR(80) NOT NULL, 
	ttft_ms FLOAT, 
	e2e_ms FLOAT NOT NULL, 
	output_tokens INTEGER, 
	error TEXT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(block_id) REFERENCES tuner_blocks (id)
);
INSERT INTO "tuner_requests" VALUES(1,1,0,'p1','chat',250.0,1000.0,5,'','{"prompt_id": "p1", "category": "chat", "scheduled_s": 0.0, "sent_s": 0.0, "first_s": 0.25, "last_s": 0.75, "end_s": 1.0, "chunk_s": [], "prompt_tokens": 9, "output_tokens": 5, "cached_tokens": 0, "finish_reason": "stop", "error": "", "text": "an answer", "extra": {}}');
INSERT INTO "tuner_requests" VALUES(2,2,0,'p1','chat',250.0,1000.0,5,'','{"prompt_id": "p1", "category": "chat", "scheduled_s": 0.0, "sent_s": 0.0, "first_s": 0.25, "last_s": 0.75, "end_s": 1.0, "chunk_s": [], "prompt_tokens": 9, "output_tokens": 5, "cached_tokens": 0, "finish_reason": "stop", "error": "", "text": "an answer", "extra": {}}');
INSERT INTO "tuner_requests" VALUES(3,3,0,'p1','chat',250.0,1000.0,5,'','{"prompt_id": "p1", "category": "chat", "scheduled_s": 0.0, "sent_s": 0.0, "first_s": 0.25, "last_s": 0.75, "end_s": 1.0, "chunk_s": [], "prompt_tokens": 9, "output_tokens": 5, "cached_tokens": 0, "finish_reason": "stop", "error": "", "text": "an answer", "extra": {}}');
CREATE TABLE tuner_schema (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	tuner_version VARCHAR(40) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "tuner_schema" VALUES(1,1,'0.1.0');
CREATE TABLE tuner_studies (
	name VARCHAR(120) NOT NULL, 
	series VARCHAR(120) NOT NULL, 
	generation INTEGER NOT NULL, 
	created_utc VARCHAR(40) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "tuner_studies" VALUES('golden','golden',1,'2026-12-01T00:00:00+00:00','{"uid": "u1"}');
CREATE TABLE tuner_trials (
	study VARCHAR(120) NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	failure VARCHAR(40), 
	digest VARCHAR(64) NOT NULL, 
	effective_digest VARCHAR(64) NOT NULL, 
	value FLOAT, 
	vs_baseline FLOAT, 
	acceptance_length FLOAT, 
	fingerprint VARCHAR(64) NOT NULL, 
	finished_utc VARCHAR(40) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (study, number), 
	FOREIGN KEY(study) REFERENCES tuner_studies (name)
);
INSERT INTO "tuner_trials" VALUES('golden',0,'baseline',NULL,'','',5.0,NULL,NULL,'','','{"version": 1, "number": 0, "state": "baseline", "failure": null, "reason": "", "hint": "", "params": {}, "requested_args": {"flags": {}, "env": {}}, "effective_args": {}, "digest": "", "effective_digest": "", "twin_of": null, "value": 5.0, "half_width": null, "vs_baseline": null, "predicted": null, "acceptance_length": null, "acceptance_per_position": [], "acceptance": null, "metrics": {}, "load_points": [{"load": "c1", "metrics": {"output_tokens_per_s": 5.0}, "per_block": {}, "requests": 0, "errors": 0, "acceptance": null}], "constraints": {}, "cycle": {}, "seconds": {"launch": 1.0, "warm_up": 0.0, "measure": 1.0, "stop": 0.0, "total": 2.0}, "warnings": [], "prune": null, "is_synthetic": false, "is_lossy": false, "is_simulated": false, "is_draft_fault": false, "outputs_match": null, "started_utc": "", "finished_utc": "", "fingerprint": "", "log_path": "", "worker": ""}');
INSERT INTO "tuner_trials" VALUES('golden',1,'complete',NULL,'d1','',7.0,1.4,NULL,'','','{"version": 1, "number": 1, "state": "complete", "failure": null, "reason": "", "hint": "", "params": {"steps": 3}, "requested_args": {"flags": {"steps": 3}, "env": {}}, "effective_args": {}, "digest": "d1", "effective_digest": "", "twin_of": null, "value": 7.0, "half_width": null, "vs_baseline": 1.4, "predicted": null, "acceptance_length": null, "acceptance_per_position": [], "acceptance": null, "metrics": {}, "load_points": [], "constraints": {}, "cycle": {}, "seconds": {"launch": 1.0, "warm_up": 0.0, "measure": 1.0, "stop": 0.0, "total": 2.0}, "warnings": [], "prune": null, "is_synthetic": false, "is_lossy": false, "is_simulated": false, "is_draft_fault": false, "outputs_match": null, "started_utc": "", "finished_utc": "", "fingerprint": "", "log_path": "", "worker": ""}');
INSERT INTO "tuner_trials" VALUES('golden',2,'failed','out_of_memory','','',NULL,NULL,NULL,'','','{"version": 1, "number": 2, "state": "failed", "failure": "out_of_memory", "reason": "CUDA", "hint": "", "params": {}, "requested_args": {"flags": {}, "env": {}}, "effective_args": {}, "digest": "", "effective_digest": "", "twin_of": null, "value": null, "half_width": null, "vs_baseline": null, "predicted": null, "acceptance_length": null, "acceptance_per_position": [], "acceptance": null, "metrics": {}, "load_points": [], "constraints": {}, "cycle": {}, "seconds": {"launch": 0.0, "warm_up": 0.0, "measure": 0.0, "stop": 0.0, "total": 0.0}, "warnings": [], "prune": null, "is_synthetic": false, "is_lossy": false, "is_simulated": false, "is_draft_fault": false, "outputs_match": null, "started_utc": "", "finished_utc": "", "fingerprint": "", "log_path": "", "worker": ""}');
CREATE TABLE tuner_workers (
	id VARCHAR(120) NOT NULL, 
	study VARCHAR(120) NOT NULL, 
	seen_s FLOAT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
CREATE INDEX ix_tuner_studies_series ON tuner_studies (series);
CREATE INDEX ix_tuner_workers_study ON tuner_workers (study);
CREATE INDEX ix_tuner_trials_digest ON tuner_trials (digest);
CREATE INDEX ix_tuner_trials_state ON tuner_trials (state);
CREATE INDEX ix_tuner_launches_trial ON tuner_launches (study, trial);
CREATE INDEX ix_tuner_recommendations_study ON tuner_recommendations (study);
CREATE INDEX ix_tuner_blocks_launch_id ON tuner_blocks (launch_id);
CREATE INDEX ix_tuner_requests_block_id ON tuner_requests (block_id);
COMMIT;
