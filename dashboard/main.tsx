import { lazy, StrictMode, Suspense } from 'react';
import { createRoot } from 'react-dom/client';
import { basePath } from './api/base-path.ts';
import { App } from './app/app.tsx';
import { language } from './texts/language.ts';
import { applyTheme } from './ui/theme.ts';

applyTheme();
document.documentElement.lang = language;
const ApiReference = lazy(() => import('./api-reference/page.tsx'));
/** The gateway serves this page at two addresses; the reference needs no login. */
const isReference = location.pathname === `${basePath}/docs`;
const root = document.getElementById('app');
if (root !== null)
  createRoot(root).render(
    <StrictMode>
      {isReference ? (
        <Suspense>
          <ApiReference />
        </Suspense>
      ) : (
        <App />
      )}
    </StrictMode>,
  );
