// A page that was opened as a file may not start a worker. A hidden frame does a worker's work there, so that the search
// of the site needs no server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<body></body>");
      inside.document.close();
      inside.postMessage = (data) => this.answer(data);
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.read(next)), Promise.resolve());
      this.ready = this.read(url);
    }

    read(url) {
      const inside = this.frame.contentWindow.document;
      const script = inside.createElement("script");
      script.src = url;
      return new Promise((done) => {
        script.onload = done;
        inside.body.append(script);
      });
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      const event = () => new MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(event()));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
