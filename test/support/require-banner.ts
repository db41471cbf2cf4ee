/**
 * Prepended to a bundle that is an ES module, because CommonJS dependencies call require(). The name is the build's; no
 * source file imports it.
 */
export const REQUIRE_BANNER =
  "import { createRequire as otelaRequire } from 'node:module'; const require = otelaRequire(import.meta.url);";
