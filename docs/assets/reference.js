"use strict";

// Draws the API reference from the document that the server serves. Nothing is loaded from elsewhere.
Redoc.init(
  "/openapi.yaml",
  {
    disableSearch: false,
    hideDownloadButtons: true,
    hideSchemaTitles: true,
    jsonSamplesExpandLevel: "all",
    requiredPropsFirst: true,
    schemaDefinitionsTagName: "Schemas",
    scrollYOffset: "nav",
    sortRequiredPropsFirst: true,
    theme: {
      colors: { primary: { main: "#1f5fae" } },
      sidebar: { width: "280px" },
      typography: {
        fontFamily: "system-ui, sans-serif",
        fontSize: "15px",
        headings: { fontFamily: "system-ui, sans-serif", fontWeight: "600" },
        code: { fontFamily: "ui-monospace, monospace", fontSize: "13px" },
      },
    },
  },
  document.getElementById("reference"),
);
