CREATE TABLE "function_secrets" (
	"owner" text COLLATE "C" NOT NULL,
	"name" text COLLATE "C" NOT NULL,
	"sealed" text COLLATE "C" NOT NULL,
	"created_by" text COLLATE "C" NOT NULL,
	"created_at" bigint NOT NULL,
	CONSTRAINT "function_secrets_owner_name_pk" PRIMARY KEY("owner","name")
);
