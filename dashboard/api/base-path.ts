/**
 * The gateway's address as the browser sees it. A proxy may show it below a path, such as `/rnode/HOST/PORT` in Open OnDemand. The
 * gateway serves the page at `/` and `/docs`, so the path ends at the last slash of the page's address.
 */

/** Without a slash at its end; empty at the root of an origin. */
export const basePath = location.pathname.slice(0, location.pathname.lastIndexOf('/'));

/** The gateway's URL, without a slash at its end. */
export const gatewayUrl = location.origin + basePath;
