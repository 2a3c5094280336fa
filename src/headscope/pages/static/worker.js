/* The network in a Worker, which reads texts while the page is free for its reader. */

import { Classifier, finished } from "./classifier.js";

// The page's own script, which is gone once its views are drawn.
const script = globalThis.document?.querySelector("script[type=module]")?.textContent;

/* Begin in a Worker: the first message brings the network, each other one asks a text for its
   log-odds, or for the cells of some heads. */
export function serve() {
  let classifier = null;
  self.onmessage = ({ data: { content, arrays, id, name, given } }) => {
    if (content) classifier = new Classifier(content, arrays);
    else self.postMessage({ id, answer: finished(classifier[name](...given)) });
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
    this.worker.onmessage = ({ data: { id, answer } }) => this.answer(id, answer);
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.hasFailed = true;
      for (const id of this.asked.keys()) this.answer(id, null);
    };
    this.worker.postMessage({ content: { ...content, blob: null }, arrays });
  }

  answer(id, found) {
    this.asked.get(id)(found);
    this.asked.delete(id);
  }

  /* What a method of the classifier gives; null where a browser does not let the Worker run. */
  ask(name, ...given) {
    if (this.hasFailed) return Promise.resolve(null);
    const id = (this.count += 1);
    return new Promise((resolve) => {
      this.asked.set(id, resolve);
      this.worker.postMessage({ id, name, given });
    });
  }
}
