/** Before a bundle that is an ES module: CommonJS dependencies call require(). The name is the build's, which no source file imports. */
export const REQUIRE_BANNER =
  "import { createRequire as otelaRequire } from 'node:module'; const require = otelaRequire(import.meta.url);";
