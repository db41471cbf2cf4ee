import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Page } from '../../ui/page.tsx';
import { Catalogue } from './catalogue.tsx';
import { Projects } from './projects.tsx';
import { ProviderRights } from './provider-rights.tsx';
import { AccessRequests } from './requests.tsx';

const texts = t.access;

export default function AccessPage() {
  const { login, role, user_id: person } = useMe();
  const mayAsk = login || role === 'operator';
  return (
    <Page title={t.pages.access} about={texts.about}>
      {!mayAsk && <p className="max-w-2xl text-pretty text-muted">{texts.needsLogin}</p>}
      <Projects mayChange={mayAsk} />
      <AccessRequests mayAsk={mayAsk && person !== null} mayDecide={mayAsk} />
      <ProviderRights mayRevoke={mayAsk} />
      <Catalogue />
    </Page>
  );
}
