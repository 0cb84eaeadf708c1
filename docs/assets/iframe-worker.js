/* Makes search work in pages that are opened from files: browsers do not start a Worker from a
   file: URL, so its script runs in a hidden iframe, which has the same interface. */
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.scope = frame.contentWindow;
      // In a worker, postMessage sends to the page that started it.
      this.scope.postMessage = (data) => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        setTimeout(() => {
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        });
      };
      this.ready = new Promise((resolve, reject) => {
        const text = this.scope.document;
        const script = text.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        text.head.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        this.scope.dispatchEvent(event);
        if (this.scope.onmessage) this.scope.onmessage(event);
      });
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
