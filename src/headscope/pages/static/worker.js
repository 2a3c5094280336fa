/* The network in a Worker, which reads texts while the page is free for its reader. */

import { Classifier, finished } from "./classifier.js";

// The page's own script, which is gone once its views are drawn.
const script = globalThis.document?.querySelector("script[type=module]")?.textContent;

/* Begin in a Worker: the first message brings the network, each other one a text. */
export function serve() {
  let classifier = null;
  self.onmessage = ({ data: { content, arrays, id, parts, ablations } }) => {
    if (content) classifier = new Classifier(content, arrays);
    else self.postMessage({ id, logOdds: finished(classifier.logOdds(parts, ablations)) });
  };
}

/* The same script, which ends with this call. A page that is a file may begin no module as a
   Worker, and what is no module has no address. */
function open() {
  const modules = script.slice(0, script.lastIndexOf("modules.")).replaceAll("import.meta", "self");
  const source = new Blob([modules, "modules.worker.serve();"], { type: "text/javascript" });
  return new Worker(URL.createObjectURL(source));
}

export class Reader {
  constructor({ content, arrays }) {
    Object.assign(this, { asked: new Map(), count: 0 });
    this.worker = open();
    this.worker.onmessage = ({ data: { id, logOdds } }) => this.answer(id, logOdds);
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.hasFailed = true;
      for (const id of this.asked.keys()) this.answer(id, null);
    };
    this.worker.postMessage({ content: { ...content, blob: null }, arrays });
  }

  answer(id, logOdds) {
    this.asked.get(id)(logOdds);
    this.asked.delete(id);
  }

  /* The log-odds of a text; null where a browser does not let the Worker run. */
  logOdds(parts, ablations) {
    if (this.hasFailed) return Promise.resolve(null);
    const id = (this.count += 1);
    return new Promise((resolve) => {
      this.asked.set(id, resolve);
      this.worker.postMessage({ id, parts, ablations });
    });
  }
}
