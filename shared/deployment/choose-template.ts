/** Chooses the template and the parameters with which an idle agent starts a model. */
import { DeploymentError } from './deployment-error.ts';
import type { TemplateOffer } from './order-reply.ts';
import { bindParameters, type Parameters } from './template-parameters.ts';

interface TemplateChoice {
  template: string;
  parameters: Parameters;
}

/** Maximum number of refusals in an error. */
const LISTED = 4;

/**
 * Returns the first template that accepts the model as its parameter `model`, together with the other parameters.
 * @param template only this template; undefined: any
 * @throws DeploymentError unknown_template or bad_parameters, with the reason of each template
 */
export function chooseTemplate(
  offers: readonly TemplateOffer[],
  model: string,
  { template, parameters }: { template: string | undefined; parameters: Parameters },
): TemplateChoice {
  const known = offers.filter((offer) => template === undefined || offer.template === template);
  if (known.length === 0) {
    const names = offers.map((offer) => offer.template).join(', ') || 'none';
    throw new DeploymentError('unknown_template', `there is no template ${template ?? ''} (known: ${names})`);
  }
  const reasons: string[] = [];
  for (const { template: name, parameters: specs } of known) {
    const values = { ...parameters, model };
    try {
      bindParameters(specs, values);
      return { template: name, parameters: values };
    } catch (error) {
      if (!(error instanceof DeploymentError)) throw error;
      reasons.push(`template ${name}: ${error.message}`);
    }
  }
  throw new DeploymentError('bad_parameters', reasons.slice(0, LISTED).join('; '));
}
