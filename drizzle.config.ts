import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'sqlite',
  schema: [
    './gateway/accounts/schema.ts',
    './gateway/accounts/model-schema.ts',
    './gateway/files/schema.ts',
    './gateway/usage/schema.ts',
  ],
  out: './migrations',
});
