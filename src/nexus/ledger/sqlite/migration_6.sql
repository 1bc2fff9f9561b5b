INSERT INTO search(search) VALUES ('delete-all');
