import { useState } from 'react';
import { gatewayUrl } from '../../api/base-path.ts';
import { Wizard } from '../../parts/job-script-wizard.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Page, Section } from '../../ui/page.tsx';
import { JoinTokens } from './join-tokens.tsx';
import { ProviderList } from './provider-list.tsx';

export default function ProvidersPage() {
  const { role } = useMe();
  const [asked, setAsked] = useState<string>();
  return (
    <Page title={t.pages.providers} about={t.joinTokens.about}>
      <JoinTokens asked={asked} ask={setAsked} />
      {role === 'operator' && <ProviderList newToken={setAsked} />}
      <Section title={t.wizard.title}>
        <Wizard gateway={gatewayUrl} />
      </Section>
    </Page>
  );
}
