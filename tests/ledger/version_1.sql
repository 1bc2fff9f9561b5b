BEGIN TRANSACTION;
DROP TABLE IF EXISTS assembly;
CREATE TABLE assembly (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL, view TEXT NOT NULL, manifest TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, thread, view, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO assembly VALUES('local',1,1,'layered/openai/2^9/estimate','{"id":"30b96e8d021cb4ef63dd88cae576d3bb","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":0,"head_hash":"","first":[1,0],"mark":0,"cut":0,"config":"4f53cda18c2baa0c","supplied":0,"current":"bc2ab2f137b30e7065c383909f316d8093ef2872e25277580cfa48df0eb157ea","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000001000);
INSERT INTO assembly VALUES('local',1,3,'layered/openai/2^9/estimate','{"id":"db679f253100dbb5bb124a058844abce","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":2,"head_hash":"6744ef717566ef67f6fcfd26d8942c7dbd57077f05a37d2bfbe5cf8d41f6fc2a","first":[1,0],"mark":0,"cut":0,"config":"4f53cda18c2baa0c","supplied":0,"current":"17beed41afd7125229c894879c0b85ebad2b2abab38b70b2cbd06875116b6463","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000003000);
INSERT INTO assembly VALUES('local',1,5,'layered/openai/2^9/estimate','{"id":"5501a9f9bb36ac3915525ca57b5ce08c","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":4,"head_hash":"56d364890d00ff7860280728193b1d9372323b543742e266ea568250dd3ee328","first":[1,0],"mark":0,"cut":0,"config":"4f53cda18c2baa0c","supplied":0,"current":"5964b89344f9ad0fbb21d97de6f4c29651a53da6ef368dd61a9939bbf27471fe","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000005000);
INSERT INTO assembly VALUES('local',1,7,'layered/openai/2^9/estimate','{"id":"e41e954a30dec68b760b811c0a5fb1bc","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":6,"head_hash":"b8c4f9d7157b06f8f98cfde0e7c950edafde1ef02d8c4b4a4783e56d6eec929b","first":[5,1],"mark":0,"cut":1,"config":"4f53cda18c2baa0c","supplied":0,"current":"1b3c7841df73fbca21c19f5cd760d40eaa627ca1bce219f7c8c81ad99932a135","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000007000);
INSERT INTO assembly VALUES('local',1,9,'layered/openai/2^9/estimate','{"id":"0a370285bb500f5c2885d98b39bc980f","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":8,"head_hash":"d456cbacdaf79888eb22b38de888cab4e696b493682ac932075f631c5a1023d0","first":[5,1],"mark":0,"cut":1,"config":"4f53cda18c2baa0c","supplied":0,"current":"69233e8c6bda47b5fa41bfc0f15697cab89419371fe94f54398d6a49a93167cc","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000009000);
INSERT INTO assembly VALUES('local',1,11,'layered/openai/2^9/estimate','{"id":"97d50c7cc7ca8e0e2b20c5444ad8d4eb","view":"layered/openai/2^9/estimate","profile":"layered","model":"gpt-4o","system":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","blocks":{},"tools":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","head":10,"head_hash":"49201a3ba983014a02512208521f88b833ac8363971a3e0d2857db32b3acd342","first":[9,1],"mark":0,"cut":2,"config":"4f53cda18c2baa0c","supplied":0,"current":"dcc35a4892bf0881e88f10fa08334f26d3d1b00787028d531c8f44e0f3125d32","counter":"estimate","factor":1.0,"available":900,"render":1,"answered":true}',1700000011000);
DROP TABLE IF EXISTS blob;
CREATE TABLE blob (
    tenant TEXT NOT NULL, sha256 TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (tenant, sha256)
) STRICT, WITHOUT ROWID;
INSERT INTO blob VALUES('local','d9cae0dbdbf078b2020e2abe5fcd74bc1edba83c35f6b8a86d638ed9b8d3d1f9',X'51554A44');
DROP TABLE IF EXISTS decision;
CREATE TABLE decision (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, view TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
    at_seq INTEGER NOT NULL, body TEXT NOT NULL, at_ms INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, view, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO decision VALUES('local',1,'layered/openai/2^9/estimate',1,'cut',6,'{"view":"layered/openai/2^9/estimate","number":1,"at_seq":6,"first":{"seq":5,"ord":1},"marker":"[Earlier messages left out to stay within the token budget: 9 messages, about 820 tokens. Nothing is lost: `nexus history main` shows the whole conversation.]","left_out_messages":9,"left_out_tokens":820,"plain_until":6,"keeps_summary":true,"reason":"over budget"}',1795314388354,X'67D0AADDB83BE38FA9A6D46109FA2863DF5121A99D4DD8AE6B01518E4A6FCC30');
INSERT INTO decision VALUES('local',1,'layered/openai/2^9/estimate',2,'cut',10,'{"view":"layered/openai/2^9/estimate","number":2,"at_seq":10,"first":{"seq":9,"ord":1},"marker":"[Earlier messages left out to stay within the token budget: 17 messages, about 1,428 tokens. Nothing is lost: `nexus history main` shows the whole conversation.]","left_out_messages":17,"left_out_tokens":1428,"plain_until":10,"keeps_summary":true,"reason":"over budget"}',1795314388358,X'BA6A2E2A16653A259C8BE940CAD7142FC632348042FBC61D493EED9217435130');
DROP TABLE IF EXISTS entry;
CREATE TABLE entry (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, turn INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, seq), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO entry VALUES('local',1,1,'messages',1,1700000001000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'0C7AD2D5963B0551882BDEF003A151926F976BFBA3D9958B716434943163E540');
INSERT INTO entry VALUES('local',1,2,'completed',1,1700000001000,'{}',X'6744EF717566EF67F6FCFD26D8942C7DBD57077F05A37D2BFBE5CF8D41F6FC2A');
INSERT INTO entry VALUES('local',1,3,'messages',2,1700000003000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'7A11DE7E0C7726DF49EC8D644EE553A088858BE7EDFC5D61B1BA636E1DA17C8B');
INSERT INTO entry VALUES('local',1,4,'completed',2,1700000003000,'{}',X'56D364890D00FF7860280728193B1D9372323B543742E266EA568250DD3EE328');
INSERT INTO entry VALUES('local',1,5,'messages',3,1700000005000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'7BA0D18D0452DE7150FDCEDE7585AA3C018D8D7753E9801DECC3C81DE4E2F06C');
INSERT INTO entry VALUES('local',1,6,'completed',3,1700000005000,'{}',X'B8C4F9D7157B06F8F98CFDE0E7C950EDAFDE1EF02D8C4B4A4783E56D6EEC929B');
INSERT INTO entry VALUES('local',1,7,'messages',4,1700000007000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'B542B83B78B9FAF4566CF87ACDE1EC68070D5616116D4F504B86CB48D9E11BFC');
INSERT INTO entry VALUES('local',1,8,'completed',4,1700000007000,'{}',X'D456CBACDAF79888EB22B38DE888CAB4E696B493682AC932075F631C5A1023D0');
INSERT INTO entry VALUES('local',1,9,'messages',5,1700000009000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'C966373F72A7D5975DB87B5FCEBF774854714F33F38C267460E69BA0B7337D36');
INSERT INTO entry VALUES('local',1,10,'completed',5,1700000009000,'{}',X'49201A3BA983014A02512208521F88B833AC8363971A3E0D2857DB32B3ACD342');
INSERT INTO entry VALUES('local',1,11,'messages',6,1700000011000,'{"model":"gpt-4o","provider":"openai","role":"unified","toolset":"","permissions":[],"source_event":null,"workspace":"","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"stop_reason":""}',X'1B7C67BEFFF58A273B2494ED144DCFD7DBF7E8F82035D9B4984F09F657BA9825');
INSERT INTO entry VALUES('local',1,12,'completed',6,1700000011000,'{}',X'4854AE3190CCD0FB4B27B10AA0A6BE607E3F4B13CDBC6A988F7763F1C73438C7');
INSERT INTO entry VALUES('local',2,1,'messages',1,1795314388359,'{}',X'EF6923DBC3378942B5CAC36572655DF20BF44C795A4B12C0EBE3FDFCFEE01749');
INSERT INTO entry VALUES('local',3,1,'messages',1,1795314388360,'{}',X'69F50F21DEAD58728B2DA1B7E825947D5717580C92C295938C960E30270DBA97');
INSERT INTO entry VALUES('local',3,2,'messages',1,1795314388361,'{}',X'AB068BFE1679634D1908598898EEE48C2DB43744D537D8EB8A53B7D3A62E6501');
INSERT INTO entry VALUES('local',3,3,'completed',1,1795314388361,'{}',X'D18D7CE776DB1891E759D2B1D1FF73E819F76F225A6A5FE85C5E37BBC9FDF609');
INSERT INTO entry VALUES('local',3,4,'compaction',1,1795314388361,'{"covers_from":1,"covers_to":3,"first_kept":4,"summary":"A summary.","type":"summary","trigger":"manual","model":"","provider":"","tokens_before":0,"tokens_after":0,"summary_tokens":0,"call_tokens":0,"duration_ms":0}',X'C732ED375523BD5FEBFBD2ABBC66A758080579B8B69400B61170AF762C04471F');
INSERT INTO entry VALUES('local',3,5,'messages',2,1795314388362,'{}',X'9FB03A35733FED8818A0AB25E808F165D938F270936D1262DAB68AFC2378886F');
INSERT INTO entry VALUES('local',4,5,'messages',3,1795314388363,'{}',X'B79F21C213BA52ACA1068E594CD3BC5BF98F5AA0493C35EDC094253AB95D1260');
INSERT INTO entry VALUES('local',5,3,'messages',2,1795314388365,'{}',X'0750F0F596E0761E3ACB88E98F106610708C7FDCA40BCBD17FF1447F35F0EE5F');
INSERT INTO entry VALUES('local',6,1,'messages',1,1795314388365,'{}',X'A5EF98BCC4E30B41C9DF0A964532EFB0A063B71A766DBD5B8BBD1570B982D2B9');
INSERT INTO entry VALUES('local',6,2,'clear',1,1795314388366,'{}',X'8259B6870CC0CDEF2A4FEBA3B904A6F915424C8BB8343F3AFA38C2EE0097159B');
INSERT INTO entry VALUES('local',7,1,'messages',1,1795314388366,'{}',X'6BBBFEAD413274CEB4317A142FA69375C379625E7426BB12222E40E2F0021A3F');
CREATE INDEX entry_mark ON entry (tenant, thread, seq) WHERE kind NOT IN ('messages', 'completed', 'failed');
DROP TABLE IF EXISTS idempotency;
CREATE TABLE idempotency (
    tenant TEXT NOT NULL, thread INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, key), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency VALUES('local',1,'context:0a370285bb500f5c2885d98b39bc980f',9,X'BBF3CA56AB6ABFFB344FCF9B4DEBC8835C14D3EB6A6B08EAD0E85FE0CD51FCCD');
INSERT INTO idempotency VALUES('local',1,'context:0a370285bb500f5c2885d98b39bc980f:end',10,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',1,'context:30b96e8d021cb4ef63dd88cae576d3bb',1,X'49C1FB65E12B04854A53BDDD4311913FE7FBBEDEB56DFBA51D82F8CAF74C68B5');
INSERT INTO idempotency VALUES('local',1,'context:30b96e8d021cb4ef63dd88cae576d3bb:end',2,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',1,'context:5501a9f9bb36ac3915525ca57b5ce08c',5,X'56DE1A6317ABE244714687B79F05C3BFCD041BEC2B08F1F3CD6B7B575D599EB2');
INSERT INTO idempotency VALUES('local',1,'context:5501a9f9bb36ac3915525ca57b5ce08c:end',6,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',1,'context:97d50c7cc7ca8e0e2b20c5444ad8d4eb',11,X'BB11787342DB6BA74B6841959B44CF94E3B3B3DDDC2670657C32996F1BAC405A');
INSERT INTO idempotency VALUES('local',1,'context:97d50c7cc7ca8e0e2b20c5444ad8d4eb:end',12,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',1,'context:db679f253100dbb5bb124a058844abce',3,X'11B8BF335722DE591D87EFFE410FABD4369443EED4A2578AD2F2A3E1F5A1B218');
INSERT INTO idempotency VALUES('local',1,'context:db679f253100dbb5bb124a058844abce:end',4,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',1,'context:e41e954a30dec68b760b811c0a5fb1bc',7,X'EB143BD8093E4180F16DF4B68AFE5C57A437B40CE8D45AC8DF699490DA253A38');
INSERT INTO idempotency VALUES('local',1,'context:e41e954a30dec68b760b811c0a5fb1bc:end',8,X'8ED9F08DF57882C4D808609AD9267A71B1B7821056AEC00554540922E1DEF6B5');
INSERT INTO idempotency VALUES('local',2,'img',1,X'82EE64B727346385E1DE0D7EBE360A3238E7FBE1F46BD248E4B8ED7E28D218EC');
INSERT INTO idempotency VALUES('local',3,'a',1,X'4BCE42CC365510A579316789995C3E5B97981C0E789CC1243453C7AE7196176F');
INSERT INTO idempotency VALUES('local',3,'b',1,X'4BCE42CC365510A579316789995C3E5B97981C0E789CC1243453C7AE7196176F');
DROP TABLE IF EXISTS message;
CREATE TABLE message (
    id_row INTEGER PRIMARY KEY, tenant TEXT NOT NULL, thread INTEGER NOT NULL, seq INTEGER NOT NULL,
    ord INTEGER NOT NULL, role TEXT NOT NULL, id TEXT NOT NULL, run_id TEXT NOT NULL, source TEXT NOT NULL,
    model TEXT NOT NULL, at_ms INTEGER NOT NULL, content TEXT NOT NULL, meta TEXT NOT NULL,
    openai INTEGER NOT NULL, anthropic INTEGER NOT NULL, gemini INTEGER NOT NULL, aside INTEGER NOT NULL,
    UNIQUE (tenant, thread, seq, ord), FOREIGN KEY (tenant, thread, seq) REFERENCES entry (tenant, thread, seq)
) STRICT;
INSERT INTO message VALUES(1,'local',1,1,0,'user','','','human','',1700000000000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:20.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 0: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(2,'local',1,1,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 0"},{"type":"tool_call","id":"c0","name":"find","arguments":"{\"n\":0}"}]','',48,45,38,0);
INSERT INTO message VALUES(3,'local',1,1,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c0","content":[{"type":"text","text":"found 0 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(4,'local',1,1,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(5,'local',1,3,0,'user','','','human','',1700000002000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:22.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 1: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(6,'local',1,3,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 1"},{"type":"tool_call","id":"c1","name":"find","arguments":"{\"n\":1}"}]','',48,45,38,0);
INSERT INTO message VALUES(7,'local',1,3,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c1","content":[{"type":"text","text":"found 1 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(8,'local',1,3,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(9,'local',1,5,0,'user','','','human','',1700000004000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:24.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 2: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(10,'local',1,5,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 2"},{"type":"tool_call","id":"c2","name":"find","arguments":"{\"n\":2}"}]','',48,45,38,0);
INSERT INTO message VALUES(11,'local',1,5,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c2","content":[{"type":"text","text":"found 2 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(12,'local',1,5,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(13,'local',1,7,0,'user','','','human','',1700000006000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:26.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 3: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(14,'local',1,7,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 3"},{"type":"tool_call","id":"c3","name":"find","arguments":"{\"n\":3}"}]','',48,45,38,0);
INSERT INTO message VALUES(15,'local',1,7,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c3","content":[{"type":"text","text":"found 3 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(16,'local',1,7,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(17,'local',1,9,0,'user','','','human','',1700000008000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:28.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 4: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(18,'local',1,9,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 4"},{"type":"tool_call","id":"c4","name":"find","arguments":"{\"n\":4}"}]','',48,45,38,0);
INSERT INTO message VALUES(19,'local',1,9,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c4","content":[{"type":"text","text":"found 4 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(20,'local',1,9,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(21,'local',1,11,0,'user','','','human','',1700000010000,'[{"type":"note","kind":"moment","text":"Current time: 2023-11-14T22:13:30.000Z\nTimezone: UTC","origin":"nexus:moment"},{"type":"text","text":"Question 5: where is the index of words? padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding padding "}]','',212,212,203,0);
INSERT INTO message VALUES(22,'local',1,11,1,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Answer 5"},{"type":"tool_call","id":"c5","name":"find","arguments":"{\"n\":5}"}]','',48,45,38,0);
INSERT INTO message VALUES(23,'local',1,11,2,'tool','','','','',0,'[{"type":"tool_result","call_id":"c5","content":[{"type":"text","text":"found 5 索引在这里"}],"name":"find"}]','',28,37,42,0);
INSERT INTO message VALUES(24,'local',1,11,3,'assistant','','','','gpt-4o',0,'[{"type":"text","text":"Done."}]','',16,23,17,0);
INSERT INTO message VALUES(25,'local',2,1,0,'user','','','','',0,'[{"type":"text","text":"look"},{"type":"image","media_type":"image/png","sha256":"d9cae0dbdbf078b2020e2abe5fcd74bc1edba83c35f6b8a86d638ed9b8d3d1f9"}]','',1654,1654,1649,0);
INSERT INTO message VALUES(26,'local',3,1,0,'system','','','','',0,'[{"type":"text","text":"Be kind."}]','',17,23,19,0);
INSERT INTO message VALUES(27,'local',3,1,1,'user','u1','','','',0,'[{"type":"text","text":"one\u0000two"}]','',20,27,22,0);
INSERT INTO message VALUES(28,'local',3,2,0,'assistant','','','','claude',0,'[{"type":"text","text":"yes"}]','',15,22,16,0);
INSERT INTO message VALUES(29,'local',3,5,0,'user','','','','',0,'[{"type":"text","text":"after"}]','',14,21,16,0);
INSERT INTO message VALUES(30,'local',4,5,0,'user','','','','',0,'[{"type":"text","text":"another way \ud800"}]','',18,25,20,0);
INSERT INTO message VALUES(31,'local',5,3,0,'user','','','','',0,'[{"type":"text","text":"from here again"}]','',18,25,21,0);
INSERT INTO message VALUES(32,'local',6,1,0,'user','','','','',0,'[{"type":"text","text":"old"}]','',13,20,16,0);
INSERT INTO message VALUES(33,'local',7,1,0,'user','','','','',0,'[{"type":"text","text":"t"}]','',13,20,15,0);
DROP TABLE IF EXISTS migration;
CREATE TABLE migration (version INTEGER PRIMARY KEY, checksum TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT;
INSERT INTO migration VALUES(1,'fd98f53b061a2ed6c477a715e2b7ce4637e89d062f656827c19ecd5f7603daf6',1795314388334);
DROP TABLE IF EXISTS session_move;
CREATE TABLE session_move (
    tenant TEXT NOT NULL, label TEXT NOT NULL, number INTEGER NOT NULL, thread INTEGER NOT NULL, title TEXT NOT NULL,
    reason TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, label, number), FOREIGN KEY (tenant, thread) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO session_move VALUES('local','branch',1,4,'','fork',1795314388362);
INSERT INTO session_move VALUES('local','cleared',1,6,'','created',1795314388365);
INSERT INTO session_move VALUES('local','imported',1,3,'','created',1795314388360);
INSERT INTO session_move VALUES('local','main',1,1,'','created',1795314388346);
INSERT INTO session_move VALUES('local','main',2,5,'','fork',1795314388364);
INSERT INTO session_move VALUES('local','picture',1,2,'','created',1795314388359);
INSERT INTO session_move VALUES('local','titled',1,7,'A title','created',1795314388366);
DROP TABLE IF EXISTS thread;
CREATE TABLE thread (
    tenant TEXT NOT NULL, id INTEGER NOT NULL, parent INTEGER, fork_seq INTEGER NOT NULL, root_hash BLOB NOT NULL,
    at_ms INTEGER NOT NULL, head_seq INTEGER NOT NULL, head_hash BLOB NOT NULL,
    PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, parent) REFERENCES thread (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO thread VALUES('local',1,NULL,0,X'E1A63DF47BE3DAD1E218F2419EDC14EA6B3140455889ED968BB2DA9D269BD3FE',1795314388346,12,X'4854AE3190CCD0FB4B27B10AA0A6BE607E3F4B13CDBC6A988F7763F1C73438C7');
INSERT INTO thread VALUES('local',2,NULL,0,X'AF4A502C5F06615E691F3E85006EC742B0BB9FBCD9984F6DB5A412FD03401A53',1795314388359,1,X'EF6923DBC3378942B5CAC36572655DF20BF44C795A4B12C0EBE3FDFCFEE01749');
INSERT INTO thread VALUES('local',3,NULL,0,X'5E4FE5C6F35895C4A45A63E347859D1C74AEAE981BAF03F5365682954524E235',1795314388360,5,X'9FB03A35733FED8818A0AB25E808F165D938F270936D1262DAB68AFC2378886F');
INSERT INTO thread VALUES('local',4,1,4,X'56D364890D00FF7860280728193B1D9372323B543742E266EA568250DD3EE328',1795314388362,5,X'B79F21C213BA52ACA1068E594CD3BC5BF98F5AA0493C35EDC094253AB95D1260');
INSERT INTO thread VALUES('local',5,1,2,X'6744EF717566EF67F6FCFD26D8942C7DBD57077F05A37D2BFBE5CF8D41F6FC2A',1795314388364,3,X'0750F0F596E0761E3ACB88E98F106610708C7FDCA40BCBD17FF1447F35F0EE5F');
INSERT INTO thread VALUES('local',6,NULL,0,X'45DCD3CECAC31550096131B6A99D0F14852D03D2C73CBB863B4BE110A984C15A',1795314388365,2,X'8259B6870CC0CDEF2A4FEBA3B904A6F915424C8BB8343F3AFA38C2EE0097159B');
INSERT INTO thread VALUES('local',7,NULL,0,X'0576B91CB164F5F0416FA3EFF13D8F1928044C80290F2C04D6633B51C228AC0E',1795314388366,1,X'6BBBFEAD413274CEB4317A142FA69375C379625E7426BB12222E40E2F0021A3F');
pragma user_version=1;
pragma application_id=1314411859;
COMMIT TRANSACTION;
