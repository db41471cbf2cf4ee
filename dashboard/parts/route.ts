/** Where in the page: `#/chat?model=x`. The hash, so that the gateway serves one file and no path of the API is taken. */
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  page: string;
  query: URLSearchParams;
}

function current(): Route {
  const [page = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { page: page || 'models', query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const onChange = () => setRoute(current());
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return route;
}
