// VitePress's own theme without its fonts, which would be fetched by every reader.
import Theme from "vitepress/theme-without-fonts";
import Drawing from "./Drawing.vue";
import "./style.css";

export default {
  extends: Theme,
  enhanceApp: ({ app }) => app.component("Drawing", Drawing),
};
